//! Uploads in parts that nobody completed, because their writer was killed. Their bytes cost money, and no
//! listing of objects shows them.
//!
//! S3 and Google list them alike ([ListMultipartUploads]); `object_store` can begin and end them only. Azure
//! forgets blocks that were not committed after a week.
//!
//! [ListMultipartUploads]: https://docs.aws.amazon.com/AmazonS3/latest/API/API_ListMultipartUploads.html

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, Utc};
use http::header::AUTHORIZATION;
use http::{HeaderValue, Method};
use object_store::aws::{AmazonS3, AwsAuthorizer};
use object_store::client::{HttpClient, HttpRequest, HttpRequestBody};
use object_store::gcp::GoogleCloudStorage;
use object_store::multipart::MultipartStore;
use object_store::path::Path;
use object_store::signer::Signer;
use object_store::{Error, MultipartId, Result};
use serde::Deserialize;
use url::Url;

/// Nothing is asked with the URL that is signed to learn where the bucket is.
const SIGNED_FOR: Duration = Duration::from_secs(60);
const LONGEST_REFUSAL: usize = 300;

/// An upload in parts that is not complete.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnfinishedUpload {
    /// What it would become, from the store's root.
    pub location: Path,
    /// By the store's clock.
    pub begun: DateTime<Utc>,
    id: MultipartId,
}

/// Lists and ends uploads of one bucket.
pub(crate) struct Uploads {
    bucket: Bucket,
    http: HttpClient,
}

enum Bucket {
    Amazon(Arc<AmazonS3>),
    Google { client: Arc<GoogleCloudStorage>, url: Url },
}

impl fmt::Debug for Uploads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Uploads").finish_non_exhaustive()
    }
}

impl Uploads {
    pub fn of_amazon(client: Arc<AmazonS3>, http: HttpClient) -> Self {
        Self { bucket: Bucket::Amazon(client), http }
    }

    /// `url` is the bucket's.
    pub fn of_google(client: Arc<GoogleCloudStorage>, url: Url, http: HttpClient) -> Self {
        Self { bucket: Bucket::Google { client, url }, http }
    }

    /// All below a folder.
    pub async fn list(&self, folder: &Path) -> Result<Vec<UnfinishedUpload>> {
        let (mut found, mut after) = (Vec::new(), None);
        loop {
            let page = self.page(folder, after.take()).await?;
            let is_encoded = page.encoding_type.as_deref() == Some("url");
            for Listed { key, upload_id, initiated } in page.upload {
                let key = if is_encoded { decoded(&key) } else { key };
                // A name that no store of ours can speak of is not ours.
                let Ok(location) = Path::parse(&key) else { continue };
                let begun = DateTime::parse_from_rfc3339(&initiated).map_err(failed)?.to_utc();
                found.push(UnfinishedUpload { location, begun, id: upload_id });
            }
            match (page.is_truncated, page.next_key_marker, page.next_upload_id_marker) {
                (true, Some(key), Some(id)) => {
                    after = Some((if is_encoded { decoded(&key) } else { key }, id));
                }
                _ => return Ok(found),
            }
        }
    }

    async fn page(&self, folder: &Path, after: Option<(String, String)>) -> Result<Page> {
        let mut url = match &self.bucket {
            Bucket::Amazon(client) => {
                // The client says where its bucket is, and in which region, only so.
                client.signed_url(Method::GET, &Path::default(), SIGNED_FOR).await?
            }
            Bucket::Google { url, .. } => url.clone(),
        };
        let region = url.query_pairs().find(|(key, _)| key == "X-Amz-Credential");
        let region = region.and_then(|(_, scope)| scope.split('/').nth(2).map(str::to_owned));
        url.set_query(None);
        {
            let mut query = url.query_pairs_mut();
            query.append_pair("uploads", "").append_pair("encoding-type", "url");
            if !folder.as_ref().is_empty() {
                query.append_pair("prefix", &format!("{folder}/"));
            }
            if let Some((key, id)) = &after {
                query.append_pair("key-marker", key).append_pair("upload-id-marker", id);
            }
        }
        let mut request = HttpRequest::new(HttpRequestBody::empty());
        *request.uri_mut() = url.as_str().parse().map_err(failed)?;
        match &self.bucket {
            Bucket::Amazon(client) => {
                let credential = client.credentials().get_credential().await?;
                let region = region.unwrap_or_default();
                AwsAuthorizer::new(&credential, "s3", &region).authorize(&mut request, None);
            }
            Bucket::Google { client, .. } => {
                let credential = client.credentials().get_credential().await?;
                let bearer = HeaderValue::from_str(&format!("Bearer {}", credential.bearer));
                request.headers_mut().insert(AUTHORIZATION, bearer.map_err(failed)?);
            }
        }
        let response = self.http.execute(request).await.map_err(failed)?;
        let status = response.status();
        let body = response.into_body().bytes().await.map_err(failed)?;
        let text = String::from_utf8_lossy(&body);
        if !status.is_success() {
            let said: String = text.chars().take(LONGEST_REFUSAL).collect();
            return Err(failed(format!("{status}: {said}")));
        }
        quick_xml::de::from_str(&text).map_err(failed)
    }

    /// Its parts are deleted. One that is gone already is no error.
    pub async fn end(&self, upload: &UnfinishedUpload) -> Result<()> {
        let ended = match &self.bucket {
            Bucket::Amazon(client) => client.abort_multipart(&upload.location, &upload.id).await,
            Bucket::Google { client, .. } => {
                client.abort_multipart(&upload.location, &upload.id).await
            }
        };
        match ended {
            Err(Error::NotFound { .. }) => Ok(()),
            other => other,
        }
    }
}

/// What the store answers.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Page {
    #[serde(default)]
    is_truncated: bool,
    next_key_marker: Option<String>,
    next_upload_id_marker: Option<String>,
    encoding_type: Option<String>,
    #[serde(default)]
    upload: Vec<Listed>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Listed {
    key: String,
    upload_id: String,
    initiated: String,
}

/// As forms are, with `+` for a space.
fn decoded(text: &str) -> String {
    let pairs = format!("={text}");
    url::form_urlencoded::parse(pairs.as_bytes()).map(|(_, value)| value.into_owned()).collect()
}

fn failed(source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
    Error::Generic { store: "uploads in parts", source: source.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_read_as_providers_write_them() {
        let page: Page = quick_xml::de::from_str(
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n\
             <ListMultipartUploadsResult xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">\
             <Bucket>b</Bucket><KeyMarker></KeyMarker><NextKeyMarker>a%2Fb+c%26</NextKeyMarker>\
             <NextUploadIdMarker>2</NextUploadIdMarker><EncodingType>url</EncodingType>\
             <IsTruncated>true</IsTruncated>\
             <Upload><Key>a</Key><UploadId>1</UploadId><Initiator><ID>x</ID></Initiator>\
             <Initiated>2026-11-25T08:30:00.000Z</Initiated></Upload>\
             <Upload><Key>b</Key><UploadId>2</UploadId><Initiated>2026-11-25T08:31:00Z</Initiated>\
             </Upload></ListMultipartUploadsResult>",
        )
        .unwrap();
        assert!(page.is_truncated);
        assert_eq!(page.upload.len(), 2);
        assert_eq!(page.upload[1].upload_id, "2");
        assert_eq!(decoded(page.next_key_marker.as_deref().unwrap()), "a/b c&");
        let empty: Page = quick_xml::de::from_str("<ListMultipartUploadsResult/>").unwrap();
        assert!(empty.upload.is_empty() && !empty.is_truncated);
    }
}
